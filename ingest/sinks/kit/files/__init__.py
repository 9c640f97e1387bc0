"""Files that tasks stage, in a local folder or an object store."""
