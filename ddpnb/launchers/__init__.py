"""Host side: how the processes of a run come to exist. Standard library only."""
