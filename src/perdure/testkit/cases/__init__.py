"""The built-in platforms on the bench, each with its peer.

Nothing of an adapter is imported here: a case writes the section of the configuration that its peer
needs, and is given what makes a platform of it.
"""
