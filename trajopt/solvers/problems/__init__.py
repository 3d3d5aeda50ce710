"""Problems of one structure that differ in numbers."""
