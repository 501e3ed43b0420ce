listeners = []


def register_event_duration_secs_listener(callback):
    listeners.append(callback)


def record_event_duration_secs(event, duration, **named):
    for callback in listeners:
        callback(event, duration, **named)
