"""What workers write down for operators: how the house is, and what reconciling came to."""
