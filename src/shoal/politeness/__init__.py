"""What a host may be asked, how often, and when to stay away: pure rules, no I/O, no clock, time is an argument."""
