"""The words of Sensorgrid as frozen values: grid, box, resolution, query, errors."""
