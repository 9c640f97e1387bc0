"""Pure arithmetic of windows: which there are, how boundaries fit together, where they may differ, when a window is complete."""
