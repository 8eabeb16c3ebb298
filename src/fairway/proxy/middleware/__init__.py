"""What is decided about a request before the server sees it: one module for each question, none of which waits.

Every module is built once from its part of the policy and a clock. The call for each request is synchronous and gives
None (go on) or a `Refusal`. Where something slow is needed first (keys from a URL, a TokenReview), that is a coroutine
of its own, which only those requests wait for that need it.
"""
