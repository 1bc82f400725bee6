"""Payloads that a user's SBE schema describes, as Arrow columns; :class:`container.sbe.decoder.SbeDecoder` makes them.

SBE is Simple Binary Encoding, the format of most services on Aeron. A schema is an XML file as the standard (version
1.0) and Real Logic's generator have it.
"""
