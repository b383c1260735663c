"""Start this machine's browser, for tests of pages."""

import shutil

#: Its path; None if there is none.
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
