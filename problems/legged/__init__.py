"""Problems of legged robots: gaits found by optimization, and scheduled gaits."""
