"""What functions return or raise: the listener of whoever has them called hears every frame."""

from mcjax_launch.kernel.launcher.part import LauncherPart

PART = LauncherPart
