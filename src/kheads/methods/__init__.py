"""The methods: the paper's five and the baselines to beat, one file each; `registry` finds them by name."""
