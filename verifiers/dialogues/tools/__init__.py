"""Tools: functions that the model may call before it answers."""
