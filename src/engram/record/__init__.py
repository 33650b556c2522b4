"""What was asked for and what came out: experiments, runs, failures, accounts, cards. No torch at import."""
