// Empty: only the dependency is built.
