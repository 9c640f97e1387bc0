"""Where windows lie in topics (`enumerator`), and how their splits are read (`reader`)."""
