"""Rules, a module for each subject: functions from a view to what they find there."""
