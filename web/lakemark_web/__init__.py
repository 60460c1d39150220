"""The web page on which an operator sees every table (docs/web.md)."""
