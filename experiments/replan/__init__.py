"""The command `trajopt replan`: a replanning run from a config, its pictures, its animation, its replay."""
