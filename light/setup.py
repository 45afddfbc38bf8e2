"""Installs the package `albert` without TensorFlow, as `albert-light`; see docs/serving.md."""

import os
import pathlib
import re
import runpy

import setuptools

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.chdir(ROOT)  # where the package is
whole = runpy.run_path("setup.py", run_name="whole")
extras = {name: whole["EXTRAS"][name] for name in whole["LIGHT_EXTRAS"]}
# Models are only run here; `onnx` writes them.
extras["onnx"] = [line for line in extras["onnx"] if line.startswith("onnxruntime")]
names = {re.match(r"[\w-]+", line)[0]: line for line in whole["REQUIREMENTS"]}
# The weights of shipped models need TensorFlow.
data = whole["PACKAGE"]["package_data"]
data["albert"] = [pattern for pattern in data["albert"] if not pattern.startswith("pretrained/")]

setuptools.setup(
    name="albert-light",
    description="ALBERT without TensorFlow: serving of ONNX models, preparation of data",
    python_requires=">=3.11",
    install_requires=[names[name] for name in whole["LIGHT"]],
    extras_require=extras,
    **whole["PACKAGE"],
)
