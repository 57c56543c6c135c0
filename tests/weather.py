"""A made-up table of weather, in which it is known what depends on what."""

import numpy as np

NAMES = ["temperature", "humidity", "dew point", "pressure", "wind", "rain", "sunshine"]


def make_weather(n: int = 3000, seed: int = 0) -> dict[str, np.ndarray]:
    """Days at some place in the north.

    The dew point follows from temperature and humidity, but for its error of measurement; most
    days have no rain at all; hours of sunshine are rounded to tenths.
    """
    rng = np.random.default_rng(seed)
    season = np.cos(2 * np.pi * (rng.uniform(0, 365, n) - 200) / 365)
    temperature = 10 + 9 * season + rng.normal(0, 3.5, n)
    humidity = 100 / (1 + np.exp(-1.2 + 0.055 * (temperature - 10) + rng.normal(0, 0.45, n)))
    # Magnus' formula.
    damp = np.log(humidity / 100) + 17.62 * temperature / (243.12 + temperature)
    dew_point = 243.12 * damp / (17.62 - damp) + rng.normal(0, 0.1, n)
    pressure = 1013 - 2 * season + rng.normal(0, 7, n)
    wind = rng.gamma(2.2, 1.6, n) * np.exp(-(pressure - 1013) / 40)
    wet = rng.uniform(size=n) < 1 / (1 + np.exp((pressure - 1009) / 3 - (humidity - 75) / 9))
    rain = np.where(wet, rng.gamma(2, 2, n), 0.0)
    sunshine = np.maximum(6 + 4 * season - 3.2 * wet + rng.normal(0, 1.6, n), 0)
    columns = [temperature, humidity, dew_point, pressure, wind, rain, np.round(sunshine, 1)]
    return dict(zip(NAMES, columns, strict=True))
