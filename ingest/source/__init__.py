"""Plans windows (`enumerator`), and reads their splits (`reader`)."""
