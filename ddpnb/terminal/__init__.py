"""What a terminal shows of a run, and how it is read: follower, panel, views."""
