"""World models: graders that predict an outcome instead of executing the solution."""
