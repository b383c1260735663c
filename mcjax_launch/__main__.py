"""`python -m mcjax_launch`."""

from mcjax_launch.cli import main

raise SystemExit(main())
