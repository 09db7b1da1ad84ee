"""Parts of pages that change while somebody looks: a socket, what it shows, and who may see it."""
