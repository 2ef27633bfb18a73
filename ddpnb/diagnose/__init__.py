"""Say what is the matter: with this machine (`doctor`)."""
