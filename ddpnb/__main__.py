"""`python -m ddpnb`: the command `ddpnb` of this very interpreter."""

from ddpnb.cli import main

if __name__ == "__main__":
    main(prog_name="ddpnb")
