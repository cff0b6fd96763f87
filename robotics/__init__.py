"""Robot manipulation from pixels: environments, progress models and policies; heavy libraries arrive when used."""
