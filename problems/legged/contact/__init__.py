"""What feet can do at the ground: forces within the friction cone, wrenches of flat feet, soft ground."""
