"""Every stage of a compilation as text: printers, recorded traces, dumps, the HTML page."""
