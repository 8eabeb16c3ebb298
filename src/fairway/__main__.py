"""`python -m fairway` is `fairway`."""

import sys

from fairway.cli.main import main

sys.exit(main())
