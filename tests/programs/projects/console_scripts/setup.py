from setuptools import find_packages, setup

setup(
    name='segnet-mini',
    version='0.3.1',
    packages=find_packages(),
    install_requires=['tensorflow-gpu>=1.14,<2'],
    entry_points={
        'console_scripts': [
            'segnet-train = segnet.cli:train',
            'segnet-info=segnet.cli:info',
        ],
    },
)
