"""The domain: values, events, state machines and deciders, pure."""
