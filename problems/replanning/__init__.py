"""Problems whose goals and obstacles move."""
