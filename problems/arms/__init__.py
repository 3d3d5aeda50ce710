"""Problems of robot arms: reaching, contour following, lifting."""
