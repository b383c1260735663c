"""Rules, a module for each subject: functions that yield the findings of a view."""
