"""The pages: each module makes what one template shows, of what the domains answer."""
