"""The forward path: one transformer core that says every model by configuration. Read
`transformer.py` first.
"""
