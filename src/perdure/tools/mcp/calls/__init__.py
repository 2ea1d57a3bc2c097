"""Makes calls of tools at tool servers: names, arguments, answers, and questions to people."""
