"""Walking robots: their legs, feet and stance, and the robots that numbers were found for."""
