"""Processes of others that we start: what keeps them from outliving us."""
