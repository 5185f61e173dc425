"""Where models come from and go to: folders, the hub, exports."""
