"""Many runs and what they show: jobs, sweeps, reports, demos."""
