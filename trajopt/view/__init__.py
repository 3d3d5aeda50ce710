"""3D views of robots and motions: in a browser, as an HTML page, as an image or a video."""
