"""A process that has torch imported and waits: it forks the supervisor and the ranks of a run.

Host side and rank side meet here, and only here: `client` asks, `process` is the waiting process,
`rank` makes a forked process look like a new interpreter, `match` says when it cannot.
"""
