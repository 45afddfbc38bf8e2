"""Installs the package `albert`; see README.md.

The environment variable ALBERT_PROJECT_URL puts the project's address into the package.
"""

import os
import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = (HERE / "albert" / "__init__.py").read_text(encoding="utf-8")

REQUIREMENTS = [
    "absl-py>=2.0",
    "numpy>=1.26",
    # Every export writes a model card, whose front matter is YAML.
    "pyyaml>=6.0",
    # --init_checkpoint reads Hugging Face folders, which are checkpoints like any other.
    "safetensors>=0.4.3",
    "sentencepiece>=0.2.0",
    "six>=1.14",
    # tensorflow.summary, which training logs with, is in there; from 2.20 on TensorFlow does not
    # bring it.
    "tensorboard>=2.18",
    "tensorflow>=2.18",  # brings grpcio and protobuf
    "tqdm>=4.60",
]
# `light/` installs the same package with these alone; what needs more says what to install.
LIGHT = ["absl-py", "numpy", "sentencepiece", "six", "tqdm"]

EXTRAS = {
    "gpu": ["tensorflow[and-cuda]>=2.18"],
    # Only URLs of hub modules need it. It imports pkg_resources, which later setuptools lack.
    "hub": ["tensorflow-hub>=0.16.1", "setuptools<82"],
    # Before 2.20 its Unicode tables are older than Python's: digits and letters come out otherwise.
    "text": ["tensorflow-text>=2.20"],
    "litert": ["ai-edge-litert>=2.0"],
    "wordpiece": ["tokenizers>=0.15"],
    "plots": ["jinja2>=3.1", "matplotlib>=3.7"],
    "sweep": ["optuna>=4.0"],
    # The first with `rng` in its resampling functions.
    "stats": ["scipy>=1.15"],
    "corpus": ["datasketch>=1.6", "sentencex>=1.0", "zstandard>=0.22"],
    "beam": ["apache-beam>=2.60"],
    # The first with kernels for Gelu in opset 20.
    "onnx": ["onnx>=1.16", "onnxruntime>=1.18"],
    "openvino": ["openvino>=2024.0"],
    "serve": ["aiohttp>=3.14", "prometheus-client>=0.20"],
    # MLflow without its server; the last two are what it keeps an SQLite file with.
    "trackers": ["mlflow-skinny>=3.17", "trackio>=0.43", "wandb>=0.31", "alembic", "sqlalchemy>=2"],
    "docs": [
        "mkdocs-material>=9.7",
        "mkdocstrings[python]>=1.0",
        "ruff>=0.17,<0.18",  # breaks long signatures
    ],
    "dev": [
        "hypothesis>=6.100",
        "import-linter>=2.0",
        "mypy>=1.11",
        "openapi-spec-validator>=0.7",
        "playwright>=1.45",  # its tests also need Chromium, and are skipped without it
        "pytest>=8.0",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.7",
        "ruff>=0.17,<0.18",
        "scikit-learn>=1.3",
        "scipy>=1.15",
        "statsmodels>=0.14",
        "tritonclient[http]>=2.40",
    ],
}

# Extras that run without TensorFlow.
LIGHT_EXTRAS = ("corpus", "docs", "onnx", "openvino", "plots", "serve", "stats", "wordpiece")

PYTHON_MINORS = range(11, 14)  # TensorFlow has packages for these

PACKAGE = {
    "version": re.search(r'^__version__ = "(.*)"$', SOURCE, re.M).group(1),
    "long_description": (HERE / "README.md").read_text(encoding="utf-8"),
    "long_description_content_type": "text/markdown",
    "license": "Apache-2.0",
    "author": "The authors of the ALBERT toolkit",
    "url": os.environ.get("ALBERT_PROJECT_URL"),
    "keywords": "ALBERT BERT language-model NLP pre-training fine-tuning TensorFlow GLUE SQuAD",
    "classifiers": [
        "Development Status :: 5 - Production/Stable",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in PYTHON_MINORS),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    "packages": setuptools.find_packages(str(HERE), include=["albert", "albert.*"]),
    "package_data": {
        "albert": ["py.typed", "configs/*.json", "recipes/*", "pretrained/*/*", "pretrained/*/*/*"],
        "albert.experiments": ["report.html.j2"],
        "albert.serving": ["page/*"],
    },
    "entry_points": {"console_scripts": ["albert = albert.cli.commands:main"]},
}

if __name__ == "__main__":
    setuptools.setup(
        name="albert",
        description="ALBERT pre-training and fine-tuning on TensorFlow 2",
        python_requires=f">=3.{PYTHON_MINORS[0]},<3.{PYTHON_MINORS[-1] + 1}",
        install_requires=REQUIREMENTS,
        extras_require=EXTRAS,
        **PACKAGE,
    )
